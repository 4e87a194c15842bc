import { dirname } from 'node:path'
import { ensurePolicyAddon, UnreachableSources } from '../../../src/image/policy-addon.ts'
import { loadPolicyEngines } from '../../../src/os/policy/load-policy-engines.ts'
import type { PolicyEngine, PolicyEngines } from '../../../src/os/policy/policy-engine.ts'

/**
 * Builds policy.node unless it is built. Returns the reason why it cannot be built here, or undefined; the reason is
 * printed, so that skipped tests are always visible: `describe.skipIf((await noPolicyAddon()) !== undefined)`. In CI that
 * is a failure.
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

/** The folder of policy.node, which is built when needed. */
export async function policyAddonFolder(): Promise<string> {
  return dirname((await ensurePolicyAddon(progress)).path)
}

/** The engines of policy.node, which is built when needed. */
export async function realPolicyEngines(): Promise<PolicyEngines> {
  const engines = loadPolicyEngines(await policyAddonFolder())
  if (engines === undefined) throw new Error('policy.node: not found where it was built')
  return engines
}

/** Calls `use` with an engine of these rules of the package agent_policy, and closes it. */
export async function withPolicy<T>(rules: string, use: (engine: PolicyEngine) => Promise<T>): Promise<T> {
  const engine = await (await realPolicyEngines()).compile(policyOf(rules))
  try {
    return await use(engine)
  } finally {
    engine.close()
  }
}

/** A policy of these rules. */
export function policyOf(rules: string): string {
  return `package agent_policy\n${rules}`
}

function progress(line: string): void {
  process.stderr.write(`${line}\n`)
}
