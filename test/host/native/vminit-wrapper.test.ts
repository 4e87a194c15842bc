import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeAll, describe, expect, it } from 'vitest'
import { buildVminit } from '../../../src/build/native.ts'
import { projectRoot } from '../../../src/build/project.ts'
import { processes, processState } from '../../support/processes.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import {
  buildChannelDisturber,
  buildDescriptorPasser,
  buildDescriptorStorer,
  buildHastyVminit,
  buildSanitizedVminit,
} from '../../support/vminit/compiled.ts'
import { commandRecord, Kind } from '../../support/vminit/record.ts'
import { run, type Supervised, supervise } from '../../support/vminit/supervised.ts'

describe.each([
  { name: 'vminit', build: buildVminit },
  { name: 'vminit under ASan and UBSan', build: buildSanitizedVminit },
])('$name', ({ build }) => {
  let vminit: string
  beforeAll(async () => {
    vminit = await build()
  })

  // They wait for the delays of vminit.
  describe.concurrent('around an agent', () => {
    it.each([0, 2])('ends with status %i when the agent does', async (status) => {
      expect(await run([vminit, '--', 'sh', '-c', `exit ${status}`])).toMatchObject({ status, stderr: '' })
    })

    it('restarts an agent that fails, passes it the count, and gives up after five times', async () => {
      const { status, stdout, stderr } = await run([vminit, '--', 'sh', '-c', 'echo $0 $*; exit 9'])
      expect(status).toBe(9)
      expect(stdout.trimEnd().split('\n')).toEqual(
        [0, 1, 2, 3, 4, 5].map((n) => `--channel 3 --restarts ${n} --stored-list 4 --broker 5`),
      )
      expect(stderr).toContain('vminit: the agent exited with status 9: restart 5 in 800 ms')
      expect(stderr).toContain(
        'vminit: the agent exited with status 9, after 5 restarts within 60 s: giving up',
      )
    })

    it('restarts an agent that has served at once, however often it dies', async () => {
      const command = octalOf(commandRecord(Kind.GATE_OPENED))
      const agent = `echo run $3; [ $3 -lt 12 ] || exit 0; printf '${command}' >&3; exit 9`
      const { status, stdout, stderr } = await run([vminit, '--', 'sh', '-c', agent])
      expect(status).toBe(0)
      expect(stdout).toContain('run 12')
      expect(stderr.match(/restart \d+ in 0 ms/g)).toHaveLength(12)
    })

    it('counts the deaths before the first that served no more', async () => {
      const command = octalOf(commandRecord(Kind.GATE_OPENED))
      const agent = `[ $3 -ne 4 ] || printf '${command}' >&3; exit 9`
      const { status, stderr } = await run([vminit, '--', 'sh', '-c', agent])
      expect(status).toBe(9)
      const delays = [...stderr.matchAll(/in (\d+) ms/g)].map(([, ms]) => Number(ms))
      expect(delays).toEqual([0, 100, 200, 400, 0, 0, 100, 200, 400, 800])
    })

    it('ends with 128 + signal when the last of those deaths was by signal', async () => {
      expect(await run([vminit, '--', 'sh', '-c', 'kill -KILL $$'])).toMatchObject({ status: 137 })
    })

    it('ends at once, with a reason, when there is no such program', async () => {
      const outcome = await run([vminit, '--', '/no/such/agent'])
      expect(outcome).toEqual({
        status: 127,
        stdout: '',
        stderr: 'vminit: cannot run /no/such/agent: No such file or directory\n',
      })
    })

    it.each([
      { death: 'kill -KILL $$', how: 'was killed by signal 9' },
      { death: 'exit 1', how: 'exited with status 1' },
      { death: 'exit 2', how: 'exited with status 2' },
    ])('does not restart an agent that has forbidden it ($death)', async ({ death, how }) => {
      const command = octalOf(commandRecord(Kind.END_WITH_AGENT))
      const { status, stderr } = await run([vminit, '--', 'sh', '-c', `printf '${command}' >&3; ${death}`])
      expect(status).toBe(3)
      expect(stderr).toBe(`vminit: the agent ${how}, and must not be restarted: its policy is lost\n`)
    })

    it('ends with status 0 when such an agent ends in good order', async () => {
      const command = octalOf(commandRecord(Kind.END_WITH_AGENT))
      expect(await run([vminit, '--', 'sh', '-c', `printf '${command}' >&3`])).toMatchObject({ status: 0 })
    })

    it('ignores commands it does not know, and a power-off', async () => {
      const unknown = [
        commandRecord(99),
        commandRecord(Kind.END_WITH_AGENT, 0, 1),
        commandRecord(Kind.POWER_OFF),
      ]
      const script = `printf '${octalOf(Buffer.concat(unknown))}' >&3`
      const { status, stderr } = await run([vminit, '--', 'sh', '-c', script])
      expect(status).toBe(0)
      expect(stderr.trimEnd().split('\n')).toEqual([
        'vminit: ignored a command of unknown kind 99',
        'vminit: ignored a command of version 1: only version 2 is known',
        'vminit: ignored a power-off: this vminit is not the init of a guest',
      ])
    })

    it('does not block when no program reads its log', async () => {
      // stderr is a fifo whose only possible reader is vminit; 2,000 messages exceed its capacity.
      const stderr = 'd=$(mktemp -d); mkfifo $d/fifo; exec 9<>$d/fifo; rm -r $d'
      const agent = 'i=0; while [ $i -lt 2000 ]; do printf %064d 0 >&3; i=$((i+1)); done'
      const { status } = await run(['bash', '-c', `${stderr}; exec ${vminit} -- sh -c '${agent}' 2>&9`])
      expect(status).toBe(0)
    })

    it('closes descriptors that are passed to it', async () => {
      expect(await run([vminit, '--', await buildDescriptorPasser()])).toMatchObject({ status: 0 })
    })

    it('keeps stored descriptors and gives them to the next agent, 8,192 at most', async () => {
      const { status, stdout, stderr } = await run([vminit, '--', await buildDescriptorStorer()])
      expect(status).toBe(0)
      expect(stdout.split('\n')).toEqual([
        ...['one: ok', 'two: ok', 'two: EEXIST', 'no name: EINVAL', 'gone: ok'],
        ...['nothing: EINVAL', 'gone: ok', 'gone: ENOENT', 'five: EEXIST'],
        // The content of each descriptor identifies it. The next line lists all descriptors of the second agent.
        ...['one 6: 1', 'two 7: 2', 'four 8: 4', 'five 9: 5', 'six 10: 5', 'three 11: 3'],
        '0 1 2 3 4 5 6 7 8 9 10 11 ',
        ...['more: ENOSPC', '2 refused', '8192 given, one more opened', ''],
      ])
      expect(stderr).toMatch(/^(vminit: the agent exited with status 1: restart \d in \d+ ms\n){2}$/)
    })

    it.each([1, 2])('answers records of random content in their order (seed %i)', async (seed) => {
      const command = [await buildChannelDisturber(), String(seed)]
      const { status, stderr } = await run([vminit, '--', ...command])
      expect({ status, stderr: stderr.replaceAll(/^vminit: ignored a .*\n/gm, '') }).toEqual({
        status: 0,
        stderr: '',
      })
    })

    it('gives the agent default signals, its own limit of open files and no descriptor but the channel, the list and the broker’s', async () => {
      // vminit starts with SIGCHLD and SIGTERM ignored and with descriptors 7 and 8 open.
      const agent = 'ulimit -n; ulimit -Hn; grep -E "Sig(Blk|Ign)" /proc/self/status; ls /proc/$$/fd'
      const start = `ulimit -Sn 1000; ulimit -Hn 2000; trap "" CHLD TERM; exec 7</dev/null 8</dev/null; exec ${vminit} -- sh -c '${agent}'`
      const { stdout } = await run(['bash', '-c', start])
      expect(stdout.split(/\s+/).filter((word) => word !== '')).toEqual([
        ...['1000', '2000'],
        'SigBlk:',
        '0000000000000000',
        'SigIgn:',
        '0000000000000000',
        ...['0', '1', '2', '3', '4', '5'],
      ])
    })
  })

  describe('and the broker', () => {
    it('starts it once, and announces each agent to it', async () => {
      const supervised = await supervise(vminit)
      const broker = await brokerOf(supervised)
      process.kill(supervised.agentPid, 'SIGKILL')
      await supervised.started(1)
      expect(brokersOf(supervised)).toEqual([broker])
      await supervised.kill()
      await expect.poll(() => processState(broker)).toBeUndefined()
    })

    it('starts both anew when it dies', async () => {
      const supervised = await supervise(vminit)
      const broker = await brokerOf(supervised)
      const agent = supervised.agentPid
      process.kill(broker, 'SIGKILL')
      await supervised.started(1)
      expect(supervised.agentPid).not.toBe(agent)
      expect(await brokerOf(supervised)).not.toBe(broker)
    })

    it('gives up when it dies too often, although the agent serves each time', async () => {
      const supervised = await supervise(vminit)
      const hex = commandRecord(Kind.GATE_OPENED).toString('hex')
      for (let deaths = 0; deaths <= 5; deaths++) {
        await supervised.started(deaths)
        supervised.tell({ order: 'send', hex })
        await supervised.until(({ events }) => events.filter(({ event }) => event === 'sent').length > deaths)
        process.kill(await brokerOf(supervised), 'SIGKILL')
      }
      expect(await supervised.ended).toBe(1)
    })

    it('kills an agent that it reports as hung, and logs where the agent is in the kernel', async () => {
      // An unknown message to the broker counts as an unanswered ping. The agent ignores the signal at which it would write
      // its stack.
      const script = '[ $3 = 1 ] && exit 0; trap "" USR2; printf unknown >&5; exec sleep 60'
      const { status, stderr } = await run([vminit, '--', 'sh', '-c', script])
      expect(status).toBe(0)
      const lines = stderr.trimEnd().split('\n')
      expect(lines).toContain('vminit: the agent hangs, and is killed in 2000 ms')
      expect(stderr).toMatch(/^vminit: \/proc\/\d+\/wchan: /m)
      expect(stderr).toMatch(/^vminit: \/proc\/\d+\/stack: /m)
      expect(lines.at(-1)).toBe('vminit: the agent was killed by signal 9: restart 1 in 0 ms')
    })
  })

  describe('and signals', () => {
    it('passes signals on to the agent and ends when the agent does', async () => {
      const supervised = await supervise(vminit)
      for (const name of ['SIGUSR1', 'SIGUSR2', 'SIGHUP', 'SIGTERM'] as const) {
        process.kill(supervised.vminitPid, name)
        await supervised.until(({ events }) =>
          events.some((each) => each.event === 'signal' && each.name === name),
        )
      }
      expect(supervised.events.filter(({ event }) => event === 'signal')).toHaveLength(4)
      supervised.tell({ order: 'exit', status: 0 })
      expect(await supervised.ended).toBe(0)
    })

    it('does not restart an agent that SIGTERM has ended', async () => {
      const script = 'echo run $3; kill -TERM $PPID; exec sleep 60'
      expect(await run([vminit, '--', 'sh', '-c', script])).toEqual({
        status: 143,
        stdout: 'run 0\n',
        stderr: '',
      })
    })
  })

  describe('and its command line', () => {
    it.each([[[]], [['tool', '--']], [['run', 'agent']]])('refuses %j', async (words) => {
      const { status, stdout, stderr } = await run([vminit, ...words])
      expect(status).toBe(2)
      expect(stdout).toBe('')
      expect(stderr).toMatch(/^usage: vminit -- \[AGENT/)
    })

    it.each([
      {
        when: 'writes to the kernel’s file',
        prepare: 'mount --bind "$1" /proc/sys/vm/compact_memory',
        status: 0,
      },
      { when: 'says why it cannot', prepare: 'mount -t tmpfs tmpfs /proc/sys/vm', status: 1 },
    ])('--compact-memory $when', async ({ prepare, status }) => {
      const file = join(temporaryFolder(), 'file')
      writeFileSync(file, '')
      const script = `${prepare} && exec "$0" --compact-memory`
      const stderr = status === 0 ? '' : '/proc/sys/vm/compact_memory: No such file or directory\n'
      const outcome = await run(['unshare', '--mount', 'sh', '-c', script, vminit, file])
      expect(outcome).toEqual({ status, stdout: '', stderr })
      expect(readFileSync(file, 'utf8')).toBe(status === 0 ? '1' : '')
    })

    it('prints the version of the project', async () => {
      const { version }: { version: string } = JSON.parse(
        readFileSync(join(projectRoot, 'package.json'), 'utf8'),
      )
      expect(await run([vminit, '--version'])).toEqual({
        status: 0,
        stdout: `vminit ${version}\n`,
        stderr: '',
      })
    })
  })
})

describe.concurrent('a broker that hangs', () => {
  it('is killed when an agent has asked for a sign of life, with its state in the log, and both start anew', async () => {
    const ask = octalOf(commandRecord(Kind.CHECK_BROKER))
    const stop = 'until broker=$(pgrep -x -P $PPID api-broker); do sleep 0.01; done; kill -STOP $broker'
    const script = `[ $3 = 1 ] && exit 0; ${stop}; printf '${ask}' >&3; exec sleep 60`
    const { status, stderr } = await run([await buildSanitizedVminit(), '--', 'sh', '-c', script])
    expect(status).toBe(0)
    expect(stderr).toMatch(
      /^vminit: the broker has not answered for 3 s, and is killed\nvminit: \/proc\/\d+\/stat: \d+ \(api-broker\) T .*/,
    )
    expect(stderr).toContain(
      'vminit: the broker was killed by signal 9: it starts again with the next agent\n',
    )
  })
})

describe.concurrent('an agent that never says hello', () => {
  it('is killed, and another starts', async () => {
    const script = '[ $3 = 0 ] || exit 0; exec sleep 60'
    const { status, stderr } = await run([await buildHastyVminit(), '--', 'sh', '-c', script])
    expect(status).toBe(0)
    expect(stderr).toMatch(/^vminit: broker: agent \d+ has not said hello for 500 ms\n/)
    expect(stderr).toContain('vminit: the agent hangs, and is killed in 2000 ms\n')
    expect(stderr).toContain(': restart 1 in 0 ms\n')
  })
})

/** Waits until the one broker below vminit has its name; the agent may be reported before. */
async function brokerOf(supervised: Supervised): Promise<number> {
  await expect.poll(() => brokersOf(supervised)).toHaveLength(1)
  const [broker = Number.NaN] = brokersOf(supervised)
  return broker
}

function brokersOf({ vminitPid }: Supervised): readonly number[] {
  return processes()
    .filter(
      ({ pid, parent }) => parent === vminitPid && readFileSync(`/proc/${pid}/cmdline`, 'utf8') === BROKER,
    )
    .map(({ pid }) => pid)
}

const BROKER = 'vminit\0--broker\0'

function octalOf(bytes: Buffer): string {
  return [...bytes].map((byte) => `\\${byte.toString(8).padStart(3, '0')}`).join('')
}
