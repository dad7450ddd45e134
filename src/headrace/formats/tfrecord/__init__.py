"""TFRecord files, and the messages that they carry."""
