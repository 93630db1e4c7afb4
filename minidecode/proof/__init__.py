"""The exact output law of a decoder, decoders that must fail, and a test of real models."""
