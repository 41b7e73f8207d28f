"""Tables that `nsys stats` printed, pasted or saved."""
