import { bootPod, GUEST_PROC } from '../../test/support/vm/guest-pod.ts'
import { report } from '../support/figure.ts'

/** How often threads of an idle agent wake up in a guest. It has a sandbox and listens to uevents. */
const SECONDS = 20
/** V8 collects garbage after work, for up to 20 s as measured. */
const TIDY_SECONDS = 30

/** Each wake-up of a thread counts as one of its voluntary context switches. */
const COUNT = `
  agent=$(dirname $(grep -l kata-agent /guest/proc/[0-9]*/comm))
  count() { cat $agent/task/*/status | awk '/^voluntary/ { sum += $2 } END { print sum }'; }
  sleep ${TIDY_SECONDS}
  before=$(count)
  sleep ${SECONDS}
  echo $(($(count) - before))`

const { guest, pod } = await bootPod()
try {
  const value = Number(await pod.output('counting', COUNT, { mounts: [GUEST_PROC] }))
  report({ figure: `wake-ups of an idle agent in ${SECONDS} s`, unit: 'wake-ups', value, floor: 0, limit: 1 })
} finally {
  await guest.stop()
}
