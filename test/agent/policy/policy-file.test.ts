import { beforeEach, describe, expect, it } from 'vitest'
import { Policy } from '../../../src/agent/policy/policy.ts'
import { readPolicyFile } from '../../../src/agent/policy/policy-file.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { StateStore } from '../../../src/state/state-store.ts'
import { FakeOs } from '../../support/fakes/fake-os.ts'
import { FakePolicyEngines } from '../../support/fakes/fake-policy-engines.ts'
import type { FakeFiles } from '../../support/fakes/files/fake-files.ts'
import { MemoryStateFiles } from '../../support/fakes/files/memory-state-files.ts'

const DEFAULT = '/etc/kata-opa/default-policy.rego'

describe('the policy of an image', () => {
  let files: FakeFiles
  beforeEach(() => {
    files = new FakeOs().files
  })

  it('is absent without a file', async () => {
    expect(await readPolicyFile({ files, scratch: files }, '')).toBeUndefined()
  })

  it('is read from Kata’s path, or from the path of the setting', async () => {
    await files.put(DEFAULT, 'package agent_policy')
    expect(await readPolicyFile({ files, scratch: files }, '')).toEqual({
      path: DEFAULT,
      text: 'package agent_policy',
    })
    await files.put('/other', 'package agent_policy # ä')
    expect(await readPolicyFile({ files, scratch: files }, '/other')).toEqual({
      path: '/other',
      text: 'package agent_policy # ä',
    })
  })

  it('stops the start when the setting names a file that does not exist', async () => {
    await files.put(DEFAULT, 'package agent_policy')
    await expect(readPolicyFile({ files, scratch: files }, '/no')).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: 'policy file /no: does not exist',
    })
  })

  it.each([
    { what: 'a folder', make: () => files.makeDirectories(DEFAULT), reason: 'not a file' },
    { what: 'not UTF-8', make: () => files.write(DEFAULT, Buffer.from([0xff])), reason: 'not UTF-8' },
    {
      what: 'too large',
      make: () => files.write(DEFAULT, Buffer.alloc(16 * 1024 * 1024 + 1)),
      reason: '16777217 bytes, want at most 16777216',
    },
  ])('stops the start when it is $what', async ({ make, reason }) => {
    await files.makeDirectories('/etc/kata-opa')
    await make()
    await expect(readPolicyFile({ files, scratch: files }, '')).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: `policy file ${DEFAULT}: ${reason}`,
    })
  })

  it.each([
    { engines: undefined, reason: 'this image has no policy engine, want one of npm run image' },
    { engines: new FakePolicyEngines({}), reason: 'policy:1:1: nonsense is no policy' },
  ])('stops the start when $reason', async ({ engines, reason }) => {
    const policy = new Policy({
      ...{ engines: () => engines, log: silentLogger(), inputLog: undefined },
      state: new StateStore(new MemoryStateFiles()),
    })
    await expect(policy.load({ path: '/p', text: 'nonsense' })).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: `policy file /p: ${reason}`,
    })
  })
})
