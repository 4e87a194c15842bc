import { buildAgent } from './build-agent.ts'

/** `npm run build`: the agent directory for this machine. */
console.log(await buildAgent())
