import { dirname } from 'node:path'
import { AgentError } from '../../base/errors.ts'
import { loadPolicyEngines } from '../../os/policy/load-policy-engines.ts'
import type { PolicyEngines } from '../../os/policy/policy-engine.ts'

const INSTALLED = '/usr/lib/microvm-agent'

/** Loads policy.node from `folder`, the tool's folder or an installed agent, else throws FAILED_PRECONDITION. */
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
