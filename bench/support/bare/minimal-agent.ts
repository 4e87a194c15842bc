import { cpSync, realpathSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { buildAgent, bundleAgent, writeCodeCache } from '../../../src/build/agent.ts'

/** Builds the minimal agent into a new folder as the agent is built, with a code cache. */
export async function buildMinimalAgent(folder: string): Promise<void> {
  cpSync(realpathSync(await buildAgent()), folder, { recursive: true })
  rmSync(join(folder, 'agent-bundle.cache'))
  await bundleAgent(folder, join(import.meta.dirname, 'minimal-agent-program.ts'))
  await writeCodeCache(folder)
}
