"""What a person or a program sees of a run: its folder, metrics, trajectories, live view and report."""
