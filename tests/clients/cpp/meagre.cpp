/* Short of memory: a program that it is loaded before gets no piece of 400,000 bytes or more. */
#include <cstdlib>
#include <new>

void *operator new(std::size_t size)
{
    void *piece = size < 400000 ? std::malloc(size) : nullptr;
    if (!piece)
        throw std::bad_alloc();
    return piece;
}
