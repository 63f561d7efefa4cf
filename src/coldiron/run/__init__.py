"""Running playbooks. The only package that knows ansible-runner."""
