"""What every plugin as a whole promises."""
