"""The one HTTP/1.1 client, for threads that block and for the reactor of `headrace.fetch`: see README.md of `store`."""
