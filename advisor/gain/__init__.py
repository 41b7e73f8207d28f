"""What a fix would win: the captured timeline replayed without the cause, as a range."""
