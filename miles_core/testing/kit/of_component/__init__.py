"""What every component promises, whatever its kind."""
