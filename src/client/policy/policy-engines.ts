import { dirname } from 'node:path'
import { AgentError } from '../../base/errors.ts'
import { loadPolicyEngines } from '../../os/policy/load-policy-engines.ts'
import type { PolicyEngines } from '../../os/policy/policy-engine.ts'

/** Where a package of the agent is installed. */
const INSTALLED = '/usr/lib/microvm-agent'

/**
 * Loads the agent's evaluator of policies from `folder`, or without one from that of the running tool or of an installed
 * agent. Throws FAILED_PRECONDITION when policy.node is not there.
 */
export function findPolicyEngines(folder?: string): PolicyEngines {
  const folders = folder === undefined ? [dirname(import.meta.filename), INSTALLED] : [folder]
  for (const each of folders) {
    const engines = loadPolicyEngines(each)
    if (engines !== undefined) return engines
  }
  const where = folder ?? `the folder of agent-ctl, in ${INSTALLED} or in --engine FOLDER`
  const text = `policy.node: not found, want it in ${where}; npm run dist builds it into dist/`
  throw new AgentError('FAILED_PRECONDITION', text)
}
