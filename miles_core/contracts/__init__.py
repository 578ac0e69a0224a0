"""What a component must do, one file for each part of the ring. Protocols only: importing this room runs nothing."""
