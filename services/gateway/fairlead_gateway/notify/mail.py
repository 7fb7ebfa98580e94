"""Mail: one message for all events of a rule that wait, over SMTP in a thread.

`Message-ID` is made of the rule and of the first event, so a mail that is sent twice after a crash is recognised. Start at `send_mail`.
"""

import asyncio
import smtplib
import ssl
from collections.abc import Sequence
from concurrent.futures import Executor
from email.message import EmailMessage
from email.utils import formatdate

from fairlead_gateway.notify.settings import MailServer
from fairlead_gateway.notify.webhook import SendFailed

#: Events of one mail; further ones are in the next.
EVENTS_MAX = 200
_SUBJECT_CHARS_MAX = 150


def mail_of(server: MailServer, to: str, message_id: str, lines: Sequence[str], at_s: float) -> EmailMessage:
    """Return the mail with these lines, one for each event in order. `at_s`: Unix s."""
    mail = EmailMessage()
    more = f" (and {len(lines) - 1} more)" if len(lines) > 1 else ""
    mail["Subject"] = f"[fairlead] {lines[0].split('  ', 1)[-1][:_SUBJECT_CHARS_MAX]}{more}"
    mail["From"], mail["To"] = server.sender, to
    mail["Date"] = formatdate(at_s)
    mail["Message-ID"] = f"<{message_id}@{server.sender.rpartition('@')[2]}>"
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content("\n".join([*lines, "", "Your rules: fairlead notify list"]) + "\n")
    return mail


async def send_mail(server: MailServer, mail: EmailMessage, threads: Executor, limit_s: float) -> None:
    """Hand a mail to the server. Raise SendFailed."""
    try:
        await asyncio.get_running_loop().run_in_executor(threads, _send, server, mail, limit_s)
    except smtplib.SMTPRecipientsRefused:
        raise SendFailed("the mail server refuses the address") from None
    except smtplib.SMTPResponseException as error:
        raise SendFailed(f"the mail server answered {error.smtp_code}") from None
    except (OSError, smtplib.SMTPException, ValueError) as error:
        raise SendFailed(f"the mail server cannot be used ({type(error).__name__})") from None


def _send(server: MailServer, mail: EmailMessage, limit_s: float) -> None:
    context = ssl.create_default_context()
    if server.scheme == "smtps":
        smtp: smtplib.SMTP = smtplib.SMTP_SSL(server.host, server.port, timeout=limit_s, context=context)
    else:
        smtp = smtplib.SMTP(server.host, server.port, timeout=limit_s)
    with smtp:
        if server.scheme == "smtp":
            smtp.starttls(context=context)
        if server.user:
            smtp.login(server.user, server.password)
        smtp.send_message(mail)
