"""JupyterLab with the namespace in its file browser, and the page in its launcher."""
