import { Interruptions } from '../client/interruptions.ts'
import { runCtl } from './run-ctl.ts'

const { env, stderr, stdin, stdout } = process
const interruptions = new Interruptions()
interruptions.listen()
void runCtl(process.argv.slice(2), { io: { stdin, stdout, stderr }, env, interruptions }).then(
  // Not before: stdin may be open for ever.
  (status) => process.exit(status),
)
