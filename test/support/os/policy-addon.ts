import { dirname } from 'node:path'
import { ensurePolicyAddon, UnreachableSources } from '../../../src/image/policy-addon.ts'
import { loadPolicyEngines } from '../../../src/os/policy/load-policy-engines.ts'
import type { PolicyEngine, PolicyEngines } from '../../../src/os/policy/policy-engine.ts'

/**
 * Builds policy.node. Returns and prints the reason when it cannot be built here: `describe.skipIf((await noPolicyAddon())
 * !== undefined)`. On CI it throws instead.
 */
export async function noPolicyAddon(): Promise<string | undefined> {
  try {
    await ensurePolicyAddon(progress)
    return undefined
  } catch (error) {
    if (!(error instanceof UnreachableSources) || process.env.CI === 'true') throw error
    process.stderr.write(`tests of policies are skipped: ${error.message}\n`)
    return error.message
  }
}

export async function policyAddonFolder(): Promise<string> {
  return dirname((await ensurePolicyAddon(progress)).path)
}

export async function realPolicyEngines(): Promise<PolicyEngines> {
  const engines = loadPolicyEngines(await policyAddonFolder())
  if (engines === undefined) throw new Error('policy.node: not found where it was built')
  return engines
}

export async function withPolicy<T>(rules: string, use: (engine: PolicyEngine) => Promise<T>): Promise<T> {
  const engine = await (await realPolicyEngines()).compile(policyOf(rules))
  try {
    return await use(engine)
  } finally {
    engine.close()
  }
}

export function policyOf(rules: string): string {
  return `package agent_policy\n${rules}`
}

function progress(line: string): void {
  process.stderr.write(`${line}\n`)
}
