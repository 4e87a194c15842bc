import { cpus, loadavg, release } from 'node:os'
import { parseArgs } from 'node:util'
import { keepGrowth, type Series, tableOf } from '../growth-page.ts'
import { commitHere } from '../support/commit.ts'
import { boot } from './boot.ts'
import { containers } from './containers.ts'
import { deaths } from './deaths.ts'
import { execs } from './execs.ts'
import { exits } from './exits.ts'
import { stdio } from './stdio.ts'

/** `npm run bench -- growth [NAME…] [--keep]`: measures how costs grow, and prints a table for each. */
const ALL: Readonly<Record<string, () => Promise<Omit<Series, 'measured'>>>> = {
  containers,
  execs,
  stdio,
  deaths,
  exits,
  boot,
}

const { values, positionals } = parseArgs({
  options: { keep: { type: 'boolean', default: false } },
  allowPositionals: true,
})
const unknown = positionals.find((name) => !(name in ALL))
if (unknown !== undefined) {
  process.stderr.write(`bench: growth ${unknown}: not found, want one of ${Object.keys(ALL).join(', ')}\n`)
  process.exit(2)
}
for (const [name, measure] of Object.entries(ALL)) {
  if (positionals.length > 0 && !positionals.includes(name)) continue
  const [load = 0] = loadavg()
  const machine = `Linux ${release()}, ${cpus().length} CPUs, load ${load.toFixed(1)}`
  const series: Series = { ...(await measure()), measured: `${await commitHere()}, ${machine}` }
  process.stdout.write(`${series.title}\n${tableOf(series).join('\n')}\n`)
  if (values.keep) keepGrowth({ [name]: series })
}
