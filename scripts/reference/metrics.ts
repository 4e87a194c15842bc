import { METRICS, type MetricRow } from '../../src/handlers/guest/metrics/table.ts'

const INTRODUCTION = `# Metrics

For people who collect figures of guests: every metric of GetMetrics. \`npm run gen\` makes this page from the table in
\`src/handlers/guest/metrics/table.ts\`.

The answer is text in Prometheus' exposition format 0.0.4. Kata's shims pass it on at their own metrics address, where
\`kata-monitor\` or Prometheus reads it. What cannot be read within 2 s is left out, with a line at level debug. Calls that
come while the figures are being read share the next reading. Nothing is measured while the agent is idle.

What the agent counts of itself begins at 0 when it is started again. \`microvm_agent_restarts_total\` tells how often that
was.
`

const SECTIONS = [
  {
    title: 'Of the agent, by the names of Kata’s agent',
    prefix: 'kata_agent_',
    text: 'From /proc/self/stat, status and io. Counters are declared as such; Kata’s agent declares gauges.',
  },
  {
    title: 'Of the guest, by the names of Kata’s agent',
    prefix: 'kata_guest_',
    text: 'From /proc/loadavg, stat, vmstat, net/dev, diskstats and meminfo, and statfs of the file systems.',
  },
  {
    title: 'Of the agent',
    prefix: 'microvm_agent_',
    text: `\`method\` is the full name of an RPC, such as \`grpc.AgentService/ExecProcess\`; those that were never called have no series.
The limits are those of [the API](limits.md).`,
  },
  {
    title: 'Of containers',
    prefix: 'microvm_container_',
    text: `Of the first 256 containers, so that the labels are bounded; \`microvm_agent_containers_without_series\` counts the others.
\`container\` is the id. The cgroup of a paused container counts as any other.`,
  },
] as const

export function metricsPage(): string {
  const rows: readonly (readonly [string, MetricRow])[] = Object.entries(METRICS)
  const sections = SECTIONS.map(({ title, prefix, text }) => {
    const own = rows.filter(([name]) => name.startsWith(prefix)).map(([name, row]) => rowOf(name, row))
    return [
      `## ${title}`,
      '',
      text,
      '',
      '| metric | type | labels | what |',
      '|---|---|---|---|',
      ...own,
    ].join('\n')
  })
  return `${[INTRODUCTION.trimEnd(), ...sections].join('\n\n')}\n`
}

function rowOf(name: string, { type, labels, help }: MetricRow): string {
  const shown = labels.map((label) => `\`${label}\``).join(', ')
  return `| \`${name}\` | ${type} | ${shown} | ${help} |`
}
