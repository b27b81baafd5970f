/* When a rule ends: RFC 3339, or seconds since 1970. */
#include "base/instant.h"
#include "rules/reader.h"

#define EXPIRY_MAX_US (INT64_C(253402300800) * US_PER_S) /* the end of the year 9999 */

void read_expiry(struct reader *r, const struct node *node, void *ret)
{
    int64_t us;
    bool number = node_is_number(node);
    bool good = number ? instant_parse_number(node->text, US_PER_S, &us)
                       : node->kind == NODE_SCALAR && instant_parse_rfc3339(node->text, &us);
    if (!good)
        report_error(r, node->line,
                     "must be a valid date and time such as 2027-01-01T00:00:00Z or 2027-01-01T08:00:00+08:00, or seconds "
                     "since 1970, not %s",
                     shown_node(r, node));
    else if (us < 0 || us >= EXPIRY_MAX_US)
        report_error(r, node->line, "must be in the years 1970 to 9999, not %s%s", shown_node(r, node),
                     number ? " seconds; are they milliseconds?" : "");
    else
        *(int64_t *)ret = us;
}
