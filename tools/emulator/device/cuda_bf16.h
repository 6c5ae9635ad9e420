// Found by the first pass over a kernel, which expands its own macros alone; device.h brings what CUDA's header
// has.
#pragma once
