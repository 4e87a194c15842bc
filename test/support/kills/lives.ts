import { readdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, vi } from 'vitest'
import type { ContainerOptions } from '../containers/container-requests.ts'
import type { Pod } from '../containers/pod.ts'
import { mountPointsOf } from '../host/agent-pod.ts'
import type { AgentProcess } from '../host/agent-process.ts'
import { processes } from '../processes.ts'

/** Left out: the folder of runs, made with the first run after a start, and an interrupted write of state. */
const BY_CHANCE = ['calls', 'saved/unfinished.new']

export interface Kept {
  readonly vminit: number
  readonly broker: number
  readonly agent: number
  readonly mounts: readonly string[]
  readonly files: readonly string[]
}

export function makeWatched(folder: string): string {
  writeFileSync(join(folder, 'file'), 'content')
  return folder
}

/** Runs the life of a container; `number` selects its kind. `watched` is the source of its storage. */
export async function live(pod: Pod, watched: string, id: string, number: number): Promise<void> {
  const terminal = number % 3 === 0
  const mountPoint = `/run/kata-containers/shared/containers/watchable/${id}`
  const withStorage: ContainerOptions = {
    storages: [
      {
        ...{ driver: 'watchable-bind', source: watched, fstype: 'bind', mountPoint },
        options: ['rbind', 'rprivate', 'ro'],
      },
    ],
    mounts: [{ source: mountPoint, destination: '/volume', type: 'bind', options: ['rbind', 'ro'] }],
  }
  const options = { terminal, ...(number % 2 === 0 && withStorage) }
  const init = await pod.run(id, ['sh', '-c', 'echo begun; read line; echo "got $line"; exit 3'], options)
  const added = await pod.add(id, 'e', ['sh', '-c', 'cat; exit 4'])
  await added.write('typed')
  await added.closeStdin()
  expect((await added.readAll()).toString()).toBe('typed')
  expect(await added.wait()).toBe(4)
  if (number % 5 === 0) {
    await pod.agent.pauseContainer({ containerId: id })
    await pod.agent.resumeContainer({ containerId: id })
  }
  if (number % 4 === 0) {
    // This life removes its container while it runs.
    await pod.remove(id)
    return
  }
  await init.write('end\n')
  expect(await init.readUntil('got end')).toContain('begun')
  expect(await init.wait()).toBe(3)
  await pod.remove(id)
}

/** Counts what is open, once two looks agree. */
export async function keptOf(started: AgentProcess): Promise<Kept> {
  let last: Kept | undefined
  const twiceTheSame = async () => {
    await started.health.check({})
    const before = last
    last = look(started)
    expect(last).toEqual(before)
    return last
  }
  return await vi.waitFor(twiceTheSame, { interval: 100, timeout: 20_000 })
}

/** Waits until exactly `before` is open. No call waits for a removal that a restarted agent continues. */
export async function keepsOnly(started: AgentProcess, before: Kept): Promise<void> {
  await vi.waitFor(
    async () => {
      await started.health.check({})
      const kept = Object.entries(look(started)).map(([what, count]) => `${what}: ${count}`)
      const wanted = Object.entries(before).map(([what, count]) => `${what}: ${count}`)
      const other = kept.filter((text) => !wanted.includes(text))
      if (other.length > 0) throw new Error(`${other.join('\n')}\nwant\n${wanted.join('\n')}`)
    },
    // Agents may still die at 20 steps of a removal, and each restart takes a second on a busy machine.
    { interval: 100, timeout: 60_000 },
  )
}

function look(started: AgentProcess): Kept {
  const { vminitPid } = started
  const broker = processes().find(({ parent, name }) => parent === vminitPid && name === 'api-broker')
  const files = readdirSync(started.inside('/run/microvm-agent'), { recursive: true, encoding: 'utf8' })
  return {
    vminit: openIn(vminitPid),
    broker: openIn(broker?.pid ?? 0),
    agent: openIn(started.agentPid()),
    mounts: mountPointsOf(started).toSorted(),
    files: files.filter((file) => !BY_CHANCE.includes(file)).sort(),
  }
}

function openIn(pid: number): number {
  return readdirSync(`/proc/${pid}/fd`).length
}
