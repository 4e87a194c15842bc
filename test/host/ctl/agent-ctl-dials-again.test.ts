import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { Interruptions } from '../../../src/client/terminal/interruptions.ts'
import { type ResettingProxy, resettingProxy } from '../../support/ctl/resetting-proxy.ts'
import { ctl } from '../../support/ctl/run-ctl.ts'
import { type AgentPod, startPod } from '../../support/host/agent-pod.ts'
import { randomFrom } from '../../support/kills/random.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

const SEED = Math.floor(Math.random() * 2 ** 31)
const UNTOLD = 'over TCP, HTTP/2 may meet a reset in a write and not tell it; a vsock tells it again'
const LOSS = 'agent-ctl: the connection was lost, dialling again\r\n'

describe.each(['ttrpc', 'grpc'])(
  `agent-ctl whose connections are lost (seed ${SEED}), over %s`,
  (protocol) => {
    let pod: AgentPod
    const random = randomFrom(SEED)
    const numbers = Array.from({ length: 400_000 }, (_, index) => `${index}\n`).join('')
    /** One request takes it. */
    const some = numbers.slice(0, 800_000)
    let proxy: ResettingProxy | undefined

    beforeAll(async () => {
      pod = await startPod({
        tcp: true,
        outputReplayBytes: 65_536,
        settings: { stream_grace: '{ secs = 8, nanos = 0 }' },
      })
      await pod.run('web', ['sleep', '1000'])
    })
    afterAll(() => pod.stop())

    /** Runs agent-ctl through a proxy; the lines about losses are left out of stderr. */
    async function through(
      limits: Parameters<typeof resettingProxy>[2],
      words: readonly string[],
      options: Parameters<typeof ctl>[1] = {},
    ) {
      proxy = await resettingProxy(pod.started.port, random, limits)
      const run = await ctl(
        ['-a', proxy.address, '--protocol', protocol, '--reconnect', '60', ...words],
        options,
      )
      proxy.close()
      const stderr = run.stderr.replaceAll(LOSS, '')
      return { ...run, stderr, losses: proxy.losses(), told: run.stderr.split(LOSS).length - 1 }
    }

    function largeFile() {
      const folder = temporaryFolder()
      const file = join(folder, 'file')
      const bytes = Buffer.from(Uint32Array.from({ length: 1_500_000 }, () => random() * 2 ** 32).buffer)
      writeFileSync(file, bytes)
      return { folder, file, bytes }
    }

    const LARGE = { least: 100_000, most: 2_500_000 }
    const SMALL = { least: 400, most: 3000 }

    it('exec passes its input and its output on, byte by byte', async () => {
      const run = await through({ least: 300_000, most: 1_400_000 }, ['exec', '-i', 'web', 'cat'], {
        stdin: some,
      })
      expect([run.status, run.stderr]).toEqual([0, ''])
      expect(differenceOf(run.stdout, some)).toBeUndefined()
      expect(run.losses).toBeGreaterThan(0)
      expect(run.told).toBeGreaterThan(0)
    })

    it('exec -t keeps its terminal', async (context) => {
      context.skip(protocol === 'grpc', UNTOLD)
      const words = ['exec', '-t', 'web', 'sh', '-c', 'seq 0 99999; exit 7']
      const run = await through({ least: 20_000, most: 200_000 }, words, { columns: 80 })
      expect([run.status, run.stderr]).toEqual([7, ''])
      const lines = numbers.slice(0, numbers.indexOf('100000\n'))
      expect(differenceOf(run.stdout, lines.replaceAll('\n', '\r\n'))).toBeUndefined()
      expect(run.losses).toBeGreaterThan(0)
    })

    it('attach goes on', async () => {
      await pod.add('web', 'joined', ['sh', '-c', 'seq 0 399999; exit 8'])
      const run = await through(LARGE, ['attach', '--no-stdin', 'web', 'joined'])
      expect([run.status, run.stderr]).toEqual([8, ''])
      expect(differenceOf(run.stdout, numbers)).toBeUndefined()
      expect(run.losses).toBeGreaterThan(0)
    })

    it('cp copies a file into a container, and out of it', async (context) => {
      context.skip(protocol === 'grpc', UNTOLD)
      const { folder, file, bytes } = largeFile()
      const into = await through(LARGE, ['cp', file, 'web:/tmp/copy'])
      expect([into.status, into.stderr]).toEqual([0, ''])
      expect(readFileSync(`${pod.root}/tmp/copy`).equals(bytes)).toBe(true)
      const out = await through(LARGE, ['cp', 'web:/tmp/copy', join(folder, 'back')])
      expect([out.status, out.stderr]).toEqual([0, ''])
      expect(readFileSync(join(folder, 'back')).equals(bytes)).toBe(true)
      expect(Math.min(into.losses, out.losses)).toBeGreaterThan(0)
    })

    it('cp copies a file into the guest', async () => {
      const { file, bytes } = largeFile()
      const guest = '/run/kata-containers/shared/containers/copied'
      const copied = await through(LARGE, ['cp', '--guest', file, guest])
      expect([copied.status, copied.stderr]).toEqual([0, ''])
      expect(readFileSync(pod.started.inside(guest)).equals(bytes)).toBe(true)
      expect(copied.losses).toBeGreaterThan(0)
    })

    it('logs -f prints each line once', async () => {
      const script = 'i=0; while [ $i -lt 200 ]; do echo line $i; i=$((i+1)); sleep 0.01; done'
      await pod.add('web', 'talker', ['sh', '-c', script])
      const reading = (async () => {
        const request = { containerId: 'web', execId: 'talker', len: 65_536 }
        while ((await pod.agent.readStdout(request)).data.length > 0);
      })()
      const run = await through(SMALL, ['logs', '-f', 'web', 'talker'])
      await reading
      expect([run.status, run.stderr]).toEqual([0, ''])
      expect(run.stdout).toBe(Array.from({ length: 200 }, (_, index) => `line ${index}\n`).join(''))
      expect(run.losses).toBeGreaterThan(0)
    })

    it('events -f prints each event once', async () => {
      const interruptions = new Interruptions()
      const isLast = (text: string) => text.includes('last')
      const following = through(SMALL, ['events', '-f', '-o', 'json'], {
        interruptions,
        onOutput: (text) => isLast(text) && interruptions.receive('SIGINT'),
      })
      for (let count = 0; count < 40; count++) {
        const job = await pod.add('web', count === 39 ? 'last' : `job${count}`, ['true'])
        expect(await job.wait()).toBe(0)
      }
      const run = await following
      const sequences = run.stdout
        .split('\n')
        .filter(Boolean)
        .map((line) => Number(JSON.parse(line).sequence))
      expect(sequences.length).toBeGreaterThan(40)
      expect(sequences).toEqual(sequences.map((_, index) => (sequences[0] ?? 0) + index))
      expect([run.stderr, run.losses > 0]).toEqual(['', true])
    })

    it('has its process signalled when it does not come back within the grace', async (context) => {
      context.skip(protocol === 'grpc', UNTOLD)
      const before = performance.now()
      const limits = { least: 3000, most: 3001 }
      const script = 'trap "exit 3" HUP; while :; do echo some text for the proxy; sleep 0.01; done'
      const words = ['--reconnect', '0', 'exec', '-t', '--id', 'left', 'web', 'sh', '-c', script]
      const run = await through(limits, words, { columns: 80 })
      expect(run.status).toBe(125)
      const exits = async () => (await pod.started.introspection.listExits({ containerId: 'web' })).exits
      await expect
        .poll(exits, { timeout: 20_000 })
        .toContainEqual(expect.objectContaining({ execId: 'left', status: 3 }))
      expect(performance.now() - before).toBeGreaterThan(8000)
    })
  },
)

/** Where two long texts differ first, with what is there. */
function differenceOf(got: string, wanted: string): object | undefined {
  if (got === wanted) return undefined
  let at = 0
  while (got[at] === wanted[at]) at += 1
  const around = (text: string) => text.slice(Math.max(0, at - 20), at + 20)
  return { at, lengths: [got.length, wanted.length], got: around(got), wanted: around(wanted) }
}
