"""Instructions that every target has, one file each or one file a family of likes."""
