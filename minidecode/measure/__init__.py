"""Numbers: measures of text, decoders side by side, speed."""
