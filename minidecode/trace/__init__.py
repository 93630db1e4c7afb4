"""What happened while a text was decoded, as lines and as a page."""
