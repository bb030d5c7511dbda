"""Only what pyproject.toml cannot say: the C index is built through cffi, and is not required."""

import sys
import sysconfig

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

NOTICE = """
lantern: the C index could not be built ({error}).
lantern: the install goes on; BM25 is served by its numpy twin, with the same results but slower.
lantern: for the fast one install a C compiler, then lantern-proxy again; `lantern doctor` shows which one serves.
"""
WITHOUT_GIL = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
"""Such a Python has no limited API."""


class BuildWhatCanBeBuilt(build_ext):
    def build_extension(self, ext: Extension) -> None:
        try:
            super().build_extension(ext)
        except Exception as error:  # setuptools goes on, since native/build.py marks the extension optional
            print(NOTICE.format(error=error), file=sys.stderr)
            raise


setup(
    cffi_modules=["native/build.py:ffi"],
    cmdclass={"build_ext": BuildWhatCanBeBuilt},
    options={} if WITHOUT_GIL else {"bdist_wheel": {"py_limited_api": "cp311"}},  # as cffi builds it
)
