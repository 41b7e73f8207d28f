"""Which serving engine made a capture, and which of its options carries out an action."""
