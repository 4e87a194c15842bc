import { describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import { AgentError } from '../../../src/base/errors.ts'
import { rehearse } from '../../../src/host/migration/rehearsal.ts'

/** What an agent is asked that refuses the calls named. */
async function asked(...refused: readonly string[]): Promise<readonly string[]> {
  const calls: string[] = []
  const call = async (_service: string, method: string) => {
    calls.push(method)
    if (refused.includes(method)) throw new AgentError('PERMISSION_DENIED', `${method}: denied by the policy`)
    return new Uint8Array()
  }
  await rehearse({ call }, neverAborted)
  return calls
}

describe('a rehearsal', () => {
  it('runs a container and removes it', async () => {
    const calls = ['CreateContainer', 'StartContainer', 'WaitProcess', 'RemoveContainer']
    expect(await asked()).toEqual(calls)
  })

  it('leaves nothing in a guest that refuses it', async () => {
    expect(await asked('CreateContainer')).toEqual(['CreateContainer'])
    expect(await asked('StartContainer')).toEqual(['CreateContainer', 'StartContainer', 'RemoveContainer'])
  })

  it('fails when its container would stay', async () => {
    await expect(asked('RemoveContainer')).rejects.toThrow('RemoveContainer: denied by the policy')
  })

  it('fails with the signal', async () => {
    const call = () => Promise.reject(new AgentError('CANCELLED', 'CreateContainer: cancelled'))
    await expect(rehearse({ call }, AbortSignal.abort(new Error('late')))).rejects.toThrow('late')
  })
})
