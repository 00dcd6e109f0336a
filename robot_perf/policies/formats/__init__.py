"""Policy files, read without executing them."""
