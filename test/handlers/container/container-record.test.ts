import { describe, expect, it } from 'vitest'
import { ProcessState } from '../../../src/gen/state/container.ts'
import { ContainerNames } from '../../../src/handlers/container/container-names.ts'
import { ContainerRecord, Phase } from '../../../src/handlers/container/container-record.ts'
import { StateStore } from '../../../src/state/state-store.ts'
import { MemoryStateFiles } from '../../support/fakes/files/memory-state-files.ts'

describe('ContainerRecord', () => {
  it('passes on the requests whose answers it no longer contains', () => {
    const kept: bigint[] = []
    const answers = { keep: (number: bigint) => void kept.push(number) }
    const state = new StateStore(new MemoryStateFiles())
    const record = new ContainerRecord(
      { state, answers, names: new ContainerNames(state) },
      { key: 'c1', cgroupPath: '/c1', request: 1n },
    )
    const exec = (key: string, request: bigint) => ProcessState.fromPartial({ key, execId: key, request })
    record.save({ phase: Phase.CREATED })
    for (const [key, request] of [
      ['p2', 2n],
      ['p3', 3n],
    ] as const)
      record.saveProcess(exec(key, request))
    expect(kept).toEqual([])
    record.dropProcess('p2')
    record.save({ phase: Phase.STARTING, request: 4n })
    record.remove()
    expect(kept).toEqual([2n, 1n, 4n, 3n])
  })
})
