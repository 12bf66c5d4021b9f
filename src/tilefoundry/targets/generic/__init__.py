"""What all targets share."""
