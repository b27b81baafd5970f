#include "every.c" // NOLINT(bugprone-suspicious-include): the same program as C++
