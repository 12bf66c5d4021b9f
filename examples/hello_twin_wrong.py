"""A twin that is wrong: it keeps float between the operations, so it rounds once, not
three times."""

from hello_two_cuts import Placed

from tilefoundry.runtime import runtime_func, runtime_module


@runtime_module(Placed)
class FusedTwin:
    @runtime_func
    def chain(self, x):
        wide = x.float()
        return ((wide * wide + wide) * wide).to(x.dtype)
