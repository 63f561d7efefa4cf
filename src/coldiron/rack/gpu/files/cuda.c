/* A libcuda that is there and says that no device is: what looks for the library finds it, what would compute is told. */
#include <stddef.h>

#define API __attribute__((visibility("default")))

enum { CUDA_NO_DEVICE = 100, CUDA_NOT_FOUND = 500 };

API int cuInit(unsigned flags)
{
    (void)flags;
    return CUDA_NO_DEVICE;
}

API int cuDeviceGetCount(int *count)
{
    *count = 0;
    return CUDA_NO_DEVICE;
}

API int cuDriverGetVersion(int *version)
{
    *version = 0;
    return CUDA_NO_DEVICE;
}

API int cuGetErrorName(int error, const char **text)
{
    *text = error == CUDA_NO_DEVICE ? "CUDA_ERROR_NO_DEVICE" : "CUDA_ERROR_UNKNOWN";
    return 0;
}

API int cuGetErrorString(int error, const char **text)
{
    *text = error == CUDA_NO_DEVICE ? "no CUDA-capable device is detected (the GPU is SIMULATED)" : "unknown error";
    return 0;
}

API int cuGetProcAddress(const char *symbol, void **function, int version, unsigned long long flags)
{
    (void)symbol;
    (void)version;
    (void)flags;
    *function = NULL;
    return CUDA_NOT_FOUND;
}
