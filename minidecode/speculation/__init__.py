"""Several tokens a pass of the target, exactly: draft, verify, roll back."""
