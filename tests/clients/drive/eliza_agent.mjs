// An ElizaOS agent, in a direct message: the newest messages stand within its only prompt, and it answers in tags. After
// its answer it has what was said looked through for facts, under the same orders.
import { randomUUID } from "node:crypto";
import { pathToFileURL } from "node:url";

const job = JSON.parse(await new Response(process.stdin).text());
const secrets = { OPENAI_API_KEY: "sk-dummy-eliza", OPENAI_BASE_URL: job.url + "/v1", OPENAI_LARGE_MODEL: "gpt-4.1-mini" };
Object.assign(process.env, secrets, { LOG_LEVEL: "fatal" });
const load = (path) => import(pathToFileURL(`${process.env.CLIENT_FOLDER}/node_modules/@elizaos/${path}`));
const { AgentRuntime, ChannelType, ModelType, createMessageMemory } = await load("core/dist/node/index.node.js");
const sql = await load("plugin-sql/dist/node/index.node.js");
const openai = (await load("plugin-openai/dist/node/index.node.js")).default;
const bootstrap = (await load("plugin-bootstrap/dist/index.js")).default;

const embedder = { [ModelType.TEXT_EMBEDDING]: async () => Array(384).fill(0.1) };
const models = { ...openai, init: undefined, models: { ...openai.models, ...embedder } };
const character = { name: "Rex", bio: ["Helps a small team."], system: "You help a small team.", settings: { secrets } };
const runtime = new AgentRuntime({ character, plugins: [sql.default, models, bootstrap], conversationLength: 7 });
const store = sql.createDatabaseAdapter({ dataDir: process.env.HOME + "/db" }, runtime.agentId);
await store.init();
const steps = new sql.DatabaseMigrationService();
await steps.initializeWithDatabase(store.getDatabase());
steps.discoverAndRegisterPluginSchemas([sql.default]);
await steps.runAllPluginMigrations();
runtime.registerDatabaseAdapter(store);
await runtime.initialize();

const [entityId, roomId, worldId, messageServerId] = Array.from({ length: 4 }, () => randomUUID());
const room = { roomId, worldId, messageServerId, channelId: "talk", source: "test", type: ChannelType.DM };
await runtime.ensureConnection({ entityId, userName: "ann", name: "Ann", ...room });
const said = (who, content) =>
  createMessageMemory({ id: randomUUID(), entityId: who, agentId: runtime.agentId, roomId, content });

const answers = [];
for (const text of job.lines) {
  let answer = "";
  const asked = said(entityId, { text, source: "test", channelType: ChannelType.DM });
  await runtime.messageService.handleMessage(runtime, { ...asked, createdAt: Date.now() }, async (content) => {
    const reply = said(runtime.agentId, content);
    await runtime.createMemory(reply, "messages");
    answer = content.text || answer;
    return [reply];
  });
  answers.push(answer);
}
console.log("\n" + JSON.stringify(answers));
process.exit(0); // its tasks go on
