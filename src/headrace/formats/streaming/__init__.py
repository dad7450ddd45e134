"""MDS of MosaicML Streaming, and chunks of litdata."""
