// Serves the page with the figures of a scene: node mock/serve.js [fine|as-
// intended|overload|capacity-short|huge|no-gate|quota|hostile]

import { MockServer } from "./server.js";

const server = await new MockServer(process.argv[2] ?? "overload").start();
console.log(server.url);
