"""Pictures of measured numbers."""
