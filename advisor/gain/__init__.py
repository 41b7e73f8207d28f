"""What a fix would gain: the captured timeline replayed without the cause, as a range."""
