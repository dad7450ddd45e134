"""What runs a model. A module a kind; `runtime.Runtime` is what each of them is to the rest of the room."""
