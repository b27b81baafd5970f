/* GET /v1/live: what the service does at present, as server-sent events, one each second. An event is made once for all
 * clients, and only while there are some. Belongs to the thread of the admin loop. */
#ifndef SERVE_LIVE_H
#define SERVE_LIVE_H

struct http_call;
struct live;
struct server;

/* Returns 0 or WEIR_E_NO_MEMORY. */
int live_new(struct live **ret, struct server *server);
/* After the end of the admin loop and of its connections. */
void live_free(struct live *live);

/* The route. */
void admin_live(struct http_call *call, struct server *server);

#endif
