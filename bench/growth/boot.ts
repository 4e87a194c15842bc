import { tmpdir } from 'node:os'
import { withTemporaryFolder } from '../../src/build/temporary-folder.ts'
import { agentOf } from '../../src/client/container/container-session.ts'
import { ensureContainerRoot } from '../../src/image/container-root.ts'
import { ensureImage } from '../../src/image/ensure-image.ts'
import { bootGuest, openOwnPlace } from '../../src/microvm/run/boot-guest.ts'
import { containerRootSource } from '../../src/microvm/run/guest-spec.ts'
import type { RunMachine } from '../../src/microvm/run/run-machine.ts'
import { progress } from '../../test/support/vm/boot-guest.ts'
import { createPod, GUEST_PROC } from '../../test/support/vm/guest-pod.ts'
import { median } from '../support/figure.ts'

const ROUNDS = 5

/**
 * Words for the kernel command line, with which the kernel prints its first line as soon as it can. It passes the last word
 * as a variable to vminit, and vminit to the agent, whose Node prints the ms since 1970 when it was ready for a program.
 * Printing takes time, so what follows is measured in boots without these words.
 */
const PRINTING = [
  ...['loglevel=6', 'earlycon=uart8250,io,0x3f8'],
  "NODE_OPTIONS=--import=data:text/javascript,console.log('ready='+(performance.timeOrigin+performance.nodeTiming.bootstrapComplete))",
]

/** Prints the kernel's log, the ns since 1970 at the begin of CLOCK_MONOTONIC, and the ticks until the agent was started. */
const LOOK = `dmesg
  awk '$1 == ".offset:" && $2 > 0 { print "wall=" $2; exit }' /guest/proc/timer_list
  for each in /guest/proc/[0-9]*; do
    if grep -q kata-agent $each/comm; then awk '{ print "agent=" $22 }' $each/stat; fi
  done`
const TICK_MS = 10

/** The phases of a guest's boot from disk, with the time of each. */
export async function boot() {
  const boots: ReadonlyMap<string, number>[] = []
  for (let round = 0; round < ROUNDS; round += 1) {
    const { qemu, firstLine, text } = await bootOnce(PRINTING)
    const { wallMs, agent } = guestTimes(text)
    const nodeMs = numberIn(text, /^ready=([\d.]+)/m) - wallMs - agent
    boots.push(phasesOf(await bootOnce([]), { firmwareMs: firstLine - qemu, nodeMs }))
  }
  const names = [...(boots[0]?.keys() ?? [])]
  return {
    title: 'Phases of a boot',
    text: 'With 512 MiB and one CPU, emulated where there is no KVM. Rows with a dash are parts of the row above them.',
    columns: ['phase', 'ms'],
    rows: names.map((name) => [name, median(boots.map((phases) => phases.get(name) ?? 0))] as const),
  }
}

/** Times of the host, in ms since the start, and what the guest said. */
interface Boot {
  readonly qemu: number
  /** Only in a boot that prints. */
  readonly firstLine: number
  readonly listening: number
  readonly checked: number
  readonly answered: number
  readonly text: string
}

async function bootOnce(append: readonly string[]): Promise<Boot> {
  const image = await ensureImage({ form: 'disk', progress })
  const containerRoot = await ensureContainerRoot(progress)
  const parts = { machine: 'q35', memoryMib: 512, cpus: 1, boot: image, containerRoot, append } as const
  return await withTemporaryFolder(tmpdir(), async (folder) => {
    const begin = performance.now()
    const now = () => performance.now() - begin
    const lines: string[] = []
    let [qemu, firstLine, listening] = [0, 0, 0]
    const started = (vm: RunMachine) => {
      qemu = now()
      vm.console.onLine((line) => {
        lines.push(line)
        if (line.includes('Linux version')) firstLine = now()
        if (line.includes('"listening"')) listening = now()
      })
    }
    const signal = AbortSignal.timeout(120_000)
    const place = await openOwnPlace({ folder, environment: process.env, progress, signal })
    const guest = await bootGuest({ parts, place, started, progress, signal })
    try {
      const checked = now()
      const agent = agentOf(guest.connection)
      await agent.listInterfaces({})
      const answered = now()
      const pod = await createPod(agent, containerRootSource(parts))
      const look = await pod.output('look', LOOK, { mounts: [GUEST_PROC], capabilities: ['CAP_SYSLOG'] })
      return { qemu, firstLine, listening, checked, answered, text: `${lines.join('\n')}\n${look}` }
    } finally {
      await guest.close()
    }
  })
}

/** The phases, each of which begins at the end of the one before, and their parts. */
function phasesOf(
  boot: Boot,
  { firmwareMs, nodeMs }: { readonly firmwareMs: number; readonly nodeMs: number },
): ReadonlyMap<string, number> {
  const { agent, kernel, told, steps } = guestTimes(boot.text)
  const atHost = (guestMs: number) => boot.listening - told('listening') + guestMs
  const phases = new Map<string, number>()
  let since = 0
  const ends = (phase: string, at: number) => {
    phases.set(phase, at - since)
    since = at
  }
  const [transport, ...rest] = steps.map(({ step, ms }) => [`– boot step \`${step}\``, Number(ms)] as const)
  ends('link and QEMU', boot.qemu)
  ends('firmware, until the first line of the kernel', boot.qemu + firmwareMs)
  ends('kernel, until it runs `/init`', atHost(kernel('Run /init')))
  ends('stage one, until the root is mounted', atHost(kernel('erofs: .* mounted')))
  ends('`vminit`, until it starts the agent', atHost(agent))
  ends('Node, until it is ready for the agent', atHost(agent + nodeMs))
  ends('the agent, until it listens', boot.listening)
  if (transport !== undefined) phases.set(...transport)
  ends('until the gate opens', atHost(told('booted')))
  phases.set('– until Check is answered', boot.checked - boot.listening)
  for (const step of rest) phases.set(...step)
  ends('until ListInterfaces, held by the gate, is answered', boot.answered)
  return phases
}

/** Times in ms of CLOCK_MONOTONIC, near which the kernel's log begins. */
function guestTimes(text: string) {
  const log = text.split('\n').flatMap((line) => (line.startsWith('{"msg"') ? [JSON.parse(line)] : []))
  const wallMs = numberIn(text, /^wall=(\d+)/m) / 1e6
  const logged = (line: string) => numberIn(text, new RegExp(`^\\[ *([\\d.]+)\\] ${line}`, 'm')) * 1000
  // The kernel sets the wall clock to the middle of the second that it has read (drivers/rtc/class.c).
  const wallSet = numberIn(text, /setting system clock to .*\((\d+)\)/) * 1000 + 500 - wallMs
  const logBegins = wallSet - logged('rtc_cmos .* setting system clock')
  return {
    wallMs,
    kernel: (line: string) => logBegins + logged(line),
    agent: numberIn(text, /^agent=(\d+)/m) * TICK_MS,
    told: (msg: string) => Date.parse(log.find((line) => line.msg === msg)?.ts) - wallMs,
    steps: log.filter(({ msg }) => msg === 'boot step'),
  }
}

function numberIn(text: string, pattern: RegExp): number {
  const found = pattern.exec(text)?.[1]
  if (found === undefined) throw new Error(`the guest did not print ${pattern}:\n${text}`)
  return Number(found)
}
