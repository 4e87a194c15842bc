import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { loadPolicyEngines } from '../../../src/os/policy/load-policy-engines.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

describe('loadPolicyEngines', () => {
  it('is undefined when the agent has no policy.node', () => {
    expect(loadPolicyEngines(temporaryFolder())).toBeUndefined()
  })

  it('names the file when it cannot be loaded', () => {
    const folder = temporaryFolder()
    writeFileSync(join(folder, 'policy.node'), 'no program')
    expect(() => loadPolicyEngines(folder)).toThrow(`load ${join(folder, 'policy.node')}: ERR_DLOPEN_FAILED`)
  })
})
