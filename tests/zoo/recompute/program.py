"""The program under test, each of whose answers about a trace is asked for once."""

import subprocess


class Program:
    """`folder`: where it runs."""

    def __init__(self, path, folder=None):
        self.path, self.folder, self.answers = path, folder, {}

    def run(self, *arguments):
        return subprocess.run([self.path, *arguments], cwd=self.folder, capture_output=True, text=True)

    def ask(self, *arguments):
        """What it exits with and prints, of a command that changes nothing."""
        if arguments not in self.answers:
            self.answers[arguments] = self.run(*arguments)
        return self.answers[arguments]

    def told(self, *arguments):
        """What it prints, of such a command that has to work."""
        answer = self.ask(*arguments)
        answer.check_returncode()
        return answer.stdout
