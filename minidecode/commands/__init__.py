"""The commands of `minidecode`, one file each: `add` makes the parser, `run` does the work."""
