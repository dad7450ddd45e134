"""The demonstration: a whole training job over the public interface, on a server of its own.

`story` tells it; `data` makes the objects; `plan` is what the training process is told; `train` is that process;
`proof` compares what was seen before the kill with what was seen after; `mounted` and `packed` train from a folder and
from shards.
"""
