/* Receipts, and giving back what they say was charged. */
#include "engine/engine.h"

int weir_refund(struct weir *weir, const struct weir_request *request, const struct weir_receipt *receipt, int64_t now_us)
{
    (void)weir, (void)request, (void)receipt, (void)now_us;
    return 0;
}

size_t weir_receipt_text(const struct weir_receipt *receipt, char *buf, size_t cap)
{
    (void)receipt, (void)buf, (void)cap;
    return 0;
}

int weir_receipt_read(struct weir_str text, struct weir_receipt *ret)
{
    (void)text, (void)ret;
    return WEIR_E_INVALID;
}
